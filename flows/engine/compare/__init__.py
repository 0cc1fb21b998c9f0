"""Two runs held against each other: numbers, samples, claims, and why they differ."""
