"""The pipelines that are built in, as files that `hocket pipeline init` writes out to be changed.

Words between @ are filled in. Each module is one pipeline's only transformation.
"""
