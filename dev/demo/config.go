package demo

import (
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Bounds and defaults of Config. Below the least number of channels a job is over
// before it can be hit in its middle; above the most, the disk is at stake.
const (
	DefaultChannels = 30_000
	LeastChannels   = 10_000
	MostChannels    = 10_000_000
	DefaultDatabase = "belfry_demo"
	DefaultListen   = "127.0.0.1:8470"
)

// Config says on what and with what a demonstration runs.
type Config struct {
	// Channels is how many are generated.
	Channels int64
	// Database is the name of the database to demonstrate in. It is made if it does
	// not exist; if it does, see the package comment (D3).
	Database string
	// Server is connected to any other database of the same server, and DSN is how:
	// the demo's own database is reached by the same DSN with another name.
	Server *pgxpool.Pool
	DSN    string
	// Executable is the belfry binary that runners are started from.
	Executable string
	// Environ is the environment of the runners, as os.Environ returns it. Variables
	// of belfry are replaced.
	Environ []string
	// Transport is where the relays get their ids from, one of Transports; empty: postgres.
	// CarrierServer is the program that is started for it; empty: the one on PATH.
	Transport     string
	CarrierServer string
	// Listen is the address, host:port, of a console that is open on the database after a good
	// demonstration until Run is cancelled; empty: none is.
	Listen string
	// Screen is what the audience sees, 80 columns wide.
	Screen io.Writer
	// Color has headings and SQL stand out by escape sequences.
	Color bool
}

var databaseName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`) })

// Validate reports every setting that cannot be used.
func (c Config) Validate() error {
	var problems []error
	if c.Channels < LeastChannels || c.Channels > MostChannels {
		problems = append(problems, fmt.Errorf("channels: %d is not allowed; allowed values: %d to %d", c.Channels, LeastChannels, MostChannels))
	}
	if err := CheckDatabase(c.Database); err != nil {
		problems = append(problems, fmt.Errorf("database: %w", err))
	}
	if c.Transport != "" && !slices.Contains(Transports(), c.Transport) {
		problems = append(problems, fmt.Errorf("transport: %q is not allowed; allowed values: %s", c.Transport, strings.Join(Transports(), ", ")))
	}
	if c.Listen != "" {
		if err := CheckListen(c.Listen); err != nil {
			problems = append(problems, fmt.Errorf("listen: %w", err))
		}
	}
	if c.Server == nil || c.DSN == "" || c.Executable == "" || c.Screen == nil {
		problems = append(problems, errors.New("server, dsn, executable and screen are required"))
	}
	return errors.Join(problems...)
}

// CheckDatabase refuses names that would need quotes in a shell.
func CheckDatabase(name string) error {
	if !databaseName().MatchString(name) {
		return fmt.Errorf("%q is not allowed; allowed values: up to 63 of a-z, 0-9 and _, not beginning with a digit", name)
	}
	return nil
}

// CheckListen refuses what is no address of a console.
func CheckListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q is not allowed; allowed values: HOST:PORT of this machine, as %s", address, DefaultListen)
	}
	return nil
}

// The runners' settings in the demo. Small limits make a dead runner show at once;
// the defaults are for servers that may be slow.
const (
	staleAfter       = 2 * time.Second
	statementTimeout = time.Second
	retryMax         = time.Second
	pollInterval     = 100 * time.Millisecond
)

// patience bounds each wait: generous, since it only ends what would not end.
func (c Config) patience() time.Duration {
	return time.Minute + time.Duration(c.Channels)*100*time.Microsecond
}

// rate is the pace of jobs that are to be hit in their middle, in rows a second: they take
// five seconds, and a quarter of them is done after one.
func (c Config) rate() string { return strconv.FormatInt(c.Channels/5, 10) }
