"""The grammar and the words behind `latentalign.data.demo`."""
