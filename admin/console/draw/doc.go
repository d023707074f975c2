// Package draw computes the drawings of the console: progress bars, sparklines, column charts, and the map of a
// radius. Its types are the data of template parts, which are SVG with geometry in attributes and colors in the
// style sheet. Each drawing has a text alternative, and a table or a legend with its numbers.
package draw
