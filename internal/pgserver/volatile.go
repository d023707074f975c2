package pgserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// volatileMarker is a file beside a cluster that is run without fsync. It holds
// the id of the boot during which the cluster was made: after a restart of the
// machine nobody knows which of its pages had reached the disk.
const volatileMarker = "volatile"

// checkVolatile compares an existing cluster with what the caller wants of it
// and removes a volatile one from before the last restart of the machine. It
// never removes anything without the marker. It reports whether the cluster is
// still there.
func (c *cluster) checkVolatile() (bool, error) {
	text, err := os.ReadFile(filepath.Join(c.home, volatileMarker))
	marked := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("open cluster: %w", err)
	}
	switch {
	case !marked && !c.cfg.Durable:
		return false, fmt.Errorf("the cluster in %s keeps data, and was asked to run without fsync: choose another data directory", c.data)
	case marked && c.cfg.Durable:
		return false, fmt.Errorf("the cluster in %s was made for tests and may lose data: choose another data directory", c.data)
	case marked && bootID() != "" && strings.TrimSpace(string(text)) != bootID():
		c.cfg.Logger.Info().Str("data_dir", c.data).Msg("making the test cluster anew, as the machine was restarted")
		if err := os.RemoveAll(c.data); err != nil {
			return false, fmt.Errorf("remove test cluster: %w", err)
		}
		return false, nil
	}
	return true, nil
}

// markVolatile writes or removes the marker for a cluster about to be created.
func (c *cluster) markVolatile() error {
	path := filepath.Join(c.home, volatileMarker)
	err := os.Remove(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if c.cfg.Durable {
		return nil
	}
	f, err := openOwned(path, os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.WriteString(bootID() + "\n")
	return errors.Join(err, f.Close())
}
