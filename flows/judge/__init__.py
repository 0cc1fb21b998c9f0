"""Language models as judges: client, retries, limits, budget, replies."""
