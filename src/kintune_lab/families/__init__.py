"""Families of subgraphs: the samples they are found from, the document of `kintune families`, and its relation map."""
