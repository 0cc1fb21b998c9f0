"""Samples and canaries from files of every format, and samples from Python objects.

`files` finds the files that a path, an S3 address or a glob names, `formats` reads each as
records by the ending of its name, `fields` maps the columns of a record to the fields of a
sample, and `reader` checks all samples and hands them out in tables. `memory` reads tables, lists
and datasets of a Python program as records instead.

To add a file format, write a function that takes a path and yields records
(`records.RecordReader`; `table_files` and `json_files` hold examples), and add it with the ending
of its files to the table `FORMATS` in `formats`. Nothing else has to change.
"""
