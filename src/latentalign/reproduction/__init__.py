"""The paper's tables and figures from any data: rows trained and evaluated alike, tables, claims, a page to look at."""
