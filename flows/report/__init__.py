"""A run as one page of HTML that fetches nothing and runs no script but its own."""
