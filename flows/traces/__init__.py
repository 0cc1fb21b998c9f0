"""Samples out of files of traces: what applications with a language model record as they run.

`formats` says of each format how its files are recognised and which module reads its spans; `spans`
holds what every format is read as, `values` finds messages, documents and texts in whatever JSON a
span has. `assembly` makes one sample of the spans of a trace. `reader` reads the files, brings the
spans of each trace together and counts what is left out.

To add a format, write a module with `spans`, and add it to the table `FORMATS` in `formats`.
"""
