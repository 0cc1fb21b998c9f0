"""Reports and a page for SQL, served to the browser of this machine and to nobody else."""
