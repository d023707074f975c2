package node

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// MetricsConfig specifies the address of metrics and health. DefaultMetricsConfig has the defaults.
type MetricsConfig struct {
	// Listen is HOST:PORT, or :PORT for all addresses. Port 0 is any free port. Empty disables metrics.
	Listen string `mapstructure:"listen"`
	// PProf also serves profiles of the process.
	PProf bool `mapstructure:"pprof"`
	// CollectEvery is the interval of database polls.
	CollectEvery time.Duration `mapstructure:"collect_every"`
}

// DefaultMetricsConfig returns the defaults that config.yaml documents.
func DefaultMetricsConfig() MetricsConfig { return MetricsConfig{CollectEvery: 15 * time.Second} }

const minCollect, maxCollect = time.Second, time.Hour

// Validate returns all invalid settings, each with its key path, or nil.
func (c MetricsConfig) Validate() error {
	var problems []error
	if c.Listen != "" && !isAddress(c.Listen) {
		problems = append(problems,
			fmt.Errorf("metrics.listen: %q is not allowed; allowed values: HOST:PORT with a port of 0 to 65535, such as "+
				"127.0.0.1:9464 or :9464, or empty", c.Listen))
	}
	if c.CollectEvery < minCollect || c.CollectEvery > maxCollect {
		problems = append(problems,
			fmt.Errorf("metrics.collect_every: %s is not allowed; allowed values: %s to %s", c.CollectEvery, minCollect, maxCollect))
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
