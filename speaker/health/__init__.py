"""Whether endpoints that come from files are well: this node checks each by itself."""
