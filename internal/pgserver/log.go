package pgserver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	maxLogSize = 8 << 20 // a start moves a larger log aside
	tailLines  = 20      // of the log, in the error of a failed start
	tailBytes  = 16 << 10
)

func (c *cluster) logPath() string { return filepath.Join(c.home, "server.log") }

// openLog opens the server's log for appending and says where it ends now. A
// large one is moved to server.log.1, in place of the one before.
func (c *cluster) openLog() (*os.File, int64, error) {
	if info, err := os.Lstat(c.logPath()); err == nil && info.Size() > maxLogSize {
		if err := os.Rename(c.logPath(), c.logPath()+".1"); err != nil {
			return nil, 0, fmt.Errorf("rotate server log: %w", err)
		}
	}
	f, err := openOwned(c.logPath(), os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return nil, 0, fmt.Errorf("open server log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("open server log: %w", err), f.Close())
	}
	return f, info.Size(), nil
}

// logTail returns the last lines written to the log at path since offset.
func logTail(path string, offset int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }() // only read
	if info, err := f.Stat(); err == nil && info.Size()-offset > tailBytes {
		offset = info.Size() - tailBytes
	}
	text, err := io.ReadAll(io.NewSectionReader(f, offset, tailBytes))
	if err != nil {
		return err.Error()
	}
	return lastLines(string(text), tailLines)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(text, "\n", "\n  ")
}
