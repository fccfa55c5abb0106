"""Sphinx configuration: `make docs` builds docs/ into build/docs, without a network."""

import sys
from pathlib import Path

import saccade

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "saccade"
author = "the saccade maintainers"
copyright = author
release = version = saccade.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "reference"]
exclude_patterns = ["results/**", "_extensions"]
nitpicky = False
suppress_warnings = ["myst.header"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # `make nightly` runs the notebooks

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
default_role = "code"  # `name` in a docstring is code
maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "saccade"
html_static_path = ["_static"]
html_css_files = ["saccade.css"]
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = r"^(\$ |>>> |\.\.\. )"
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = False
