"""Plain text and drawing primitives for every layer above: units, aligned columns, SVG figures."""
