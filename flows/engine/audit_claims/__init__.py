"""What is wrong with the claims of a run, whatever the judges say of them."""
