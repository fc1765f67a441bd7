"""Planning: a schema and a shape in, changes and routes out."""
