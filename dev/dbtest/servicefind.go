package dbtest

import (
	"os"
	"path/filepath"
	"testing"
)

// usualPlaces lists the directories in which packages install servers. Some of them may not be on PATH.
func usualPlaces() []string {
	return []string{
		"/usr/bin",
		"/usr/sbin",
		"/usr/local/bin",
		"/usr/local/sbin",
		"/opt/homebrew/bin",
		"/home/linuxbrew/.linuxbrew/bin",
		"/opt/local/bin",
	}
}

// findService returns the path of the first of the named programs that is installed. It
// skips the test when none is.
func findService(t testing.TB, service string, programs ...string) string {
	t.Helper()
	path, ok := lookup(append(filepath.SplitList(os.Getenv("PATH")), usualPlaces()...), programs)
	if !ok {
		t.Skipf("%s: not installed (none of %v); .ci/install installs it", service, programs)
	}
	return path
}

// ChromiumProgram is the path of a browser for a test, which is skipped if none is installed.
func ChromiumProgram(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"Chromium", "Google Chrome"} { // the names on macOS
		if path, ok := lookup([]string{"/Applications/" + name + ".app/Contents/MacOS"}, []string{name}); ok {
			return path
		}
	}
	return findService(t, "chromium", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
}

// PromtoolProgram returns the path of promtool, which checks alert rules, and skips the test if it is not
// installed.
func PromtoolProgram(t testing.TB) string {
	t.Helper()
	return findService(t, "promtool", "promtool")
}

func lookup(dirs, programs []string) (path string, ok bool) {
	for _, program := range programs {
		for _, dir := range dirs {
			if !filepath.IsAbs(dir) {
				continue // never run a program of the current directory
			}
			path := filepath.Join(dir, program)
			info, err := os.Stat(path)
			if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path, true
			}
		}
	}
	return "", false
}
