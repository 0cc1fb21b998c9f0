"""Single plots, drawn while they are written: what comes out is SVG or PNG and runs nothing."""
