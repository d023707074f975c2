package child

import (
	"io"
	"os"
	"strings"
)

// Limits of the text that Tail returns.
const (
	tailLines = 20
	tailBytes = 16 << 10
)

// Tail returns the last lines written to the log at path since offset, or the error of reading it.
func Tail(path string, offset int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }() // only read
	if info, err := f.Stat(); err == nil {
		offset = max(offset, info.Size()-tailBytes)
	}
	text, err := io.ReadAll(io.NewSectionReader(f, offset, tailBytes))
	if err != nil {
		return err.Error()
	}
	return LastLines(string(text))
}

// LastLines returns the last lines of a text.
func LastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
