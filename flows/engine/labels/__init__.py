"""What people say of claims, verdicts and samples: drawn, written as a blind sheet, taken in."""
