package console

import "strings"

// Designed returns the paths of the designed pages.
func Designed() (paths []string) {
	for _, r := range routes() {
		if path, is := strings.CutPrefix(r.pattern, "GET "); is {
			paths = append(paths, strings.TrimSuffix(path, "{$}"))
		}
	}
	return paths
}
