package demo

import (
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Bounds and defaults of Config. A job of fewer channels ends before it can be killed; more channels
// may fill the disk.
const (
	DefaultChannels = 30_000
	LeastChannels   = 10_000
	MostChannels    = 10_000_000
	DefaultDatabase = "belfry_demo"
	DefaultListen   = "127.0.0.1:8470"
)

// Config is the configuration of a demo.
type Config struct {
	// Channels is the number of channels to generate.
	Channels int64
	// Database is the name of the demo's database. It is created if it does
	// not exist; if it does, see the package comment (D3).
	Database string
	// Server is connected to another database of the same server by DSN. The demo connects to
	// its own database by the same DSN with another name.
	Server *pgxpool.Pool
	DSN    string
	// Executable is the belfry binary of the runners.
	Executable string
	// Environ is the environment of the runners, in the form of os.Environ. Variables
	// of belfry are replaced.
	Environ []string
	// Listen is the address, host:port, of a console on the database, which runs after a successful
	// demo until Run is cancelled. Empty means no console.
	Listen string
	// Screen receives the output for people, 80 columns wide.
	Screen io.Writer
	// Color enables escape sequences for headings and SQL.
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

// CheckDatabase rejects names that would need quotes in a shell.
func CheckDatabase(name string) error {
	if !databaseName().MatchString(name) {
		return fmt.Errorf("%q is not allowed; allowed values: up to 63 of a-z, 0-9 and _, not beginning with a digit", name)
	}
	return nil
}

// CheckListen rejects invalid addresses of a console.
func CheckListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q is not allowed; allowed values: HOST:PORT of this machine, such as %s", address, DefaultListen)
	}
	return nil
}

// The runners' settings in the demo. Small limits detect a dead runner soon; the defaults are for slow servers. On a
// busy machine a first claim takes more than a second.
const (
	staleAfter       = 6 * time.Second
	statementTimeout = 3 * time.Second
	retryMax         = time.Second
	pollInterval     = 100 * time.Millisecond
)

// patience is the deadline of each wait.
func (c Config) patience() time.Duration {
	return time.Minute + time.Duration(c.Channels)*100*time.Microsecond
}

// rate is the limit of jobs that the demo kills or aborts, in rows per second: they take five seconds,
// and a quarter of their rows exists after 1.25 seconds.
func (c Config) rate() string { return strconv.FormatInt(c.Channels/5, 10) }
