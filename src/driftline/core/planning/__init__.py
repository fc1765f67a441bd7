"""A schema and a shape in, the changes and the routes out."""
