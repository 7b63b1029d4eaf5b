"""Settings of Sphinx, which makes the book of these pages (``make docs``)."""

project = "Ganeti cluster manager, in Python"
copyright = ""  # noqa: A001 - the name is Sphinx's
html_show_copyright = False
html_show_sphinx = False
html_title = project
html_theme = "furo"
html_copy_source = False
html_show_sourcelink = False
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["manual", "examples"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
# The command lines of blocks without a language are no program of one.
highlight_language = "none"
