"""Everything that is shown in a browser: pages and the server."""
