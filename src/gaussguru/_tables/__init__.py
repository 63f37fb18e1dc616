"""Files of tables: read in parts, written whole or not at all; which columns mean what; models of them."""
