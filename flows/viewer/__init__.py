"""The local web application: runs, reports and SQL."""
