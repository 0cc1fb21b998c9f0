"""Claims and verdicts as sheets: written for a spreadsheet, read back, held against their run."""
