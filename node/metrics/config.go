package metrics

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// Config says where a process shows its metrics and its health. DefaultConfig has every
// default.
type Config struct {
	// Listen is HOST:PORT, or :PORT for all addresses; port 0: any that is free. Empty:
	// nothing is shown, and nothing is counted.
	Listen string `mapstructure:"listen"`
	// PProf serves profiles of the process as well.
	PProf bool `mapstructure:"pprof"`
	// CollectEvery is how often the database is looked at.
	CollectEvery time.Duration `mapstructure:"collect_every"`
}

// DefaultConfig is what config.yaml documents.
func DefaultConfig() Config { return Config{CollectEvery: 15 * time.Second} }

const minCollect, maxCollect = time.Second, time.Hour

// Validate returns every problem at once, each with its key path, or nil.
func (c Config) Validate() error {
	var problems []error
	if c.Listen != "" && !isAddress(c.Listen) {
		problems = append(problems, fmt.Errorf("metrics.listen: %q is not allowed; allowed values: HOST:PORT with a port of 0 to 65535, as 127.0.0.1:9464 or :9464, or empty for none", c.Listen))
	}
	if c.CollectEvery < minCollect || c.CollectEvery > maxCollect {
		problems = append(problems, fmt.Errorf("metrics.collect_every: %s is not allowed; allowed values: %s to %s", c.CollectEvery, minCollect, maxCollect))
	}
	return errors.Join(problems...)
}

func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && n >= 0 && n <= 65535
}
