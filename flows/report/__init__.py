"""Reports of a run: one content, shown as Markdown, HTML, JUnit, JSON, plots and on a terminal."""
