"""The tools that stages are lent: real ones, and those that only count or foresee for a plan."""
