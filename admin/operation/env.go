package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/governor"
	"github.com/belfryhq/belfry/outbox"
)

// Env contains the dependencies of operations.
type Env struct {
	DB *pgxpool.Pool
	// Jobs includes the abort cache, if one is configured.
	Jobs *job.Store
	// Channels reads the configured relation.
	Channels *channels.Store
	// Actor is the default actor; an input may specify another. Role restricts the operations; the zero value
	// allows none.
	Actor string
	Role  Role
	// Senders are the names of the configured senders.
	Senders []string
	// Retention is the configured retention.
	Retention outbox.Retention
	// Carrier is the configured carrier.
	Carrier Carrier
	// Media are the media of the configured senders.
	Media []string
	// Compose is the configuration for previews of messages.
	Compose Compose
	// ConfigFlags are the command-line flags with the configuration files, each after a blank.
	ConfigFlags string
	// Setup describes this process for the doctor.
	Setup Setup
	// InStep records the configured channels.relation in the database. Nil means that the process recorded it
	// at its start, if its role allows that.
	InStep func(context.Context) error
	// Now is the clock of the process; nil means the machine's clock.
	Now func() time.Time
	// Interval is the time between two polls of a stream without a Broadcaster; zero means a second.
	Interval time.Duration
	// Broadcaster polls for all streams of the process. Nil means that each stream polls for itself.
	Broadcaster Notifier
	// Progress receives a line about a long operation now and then. It may be nil.
	Progress func(line string)

	each func(item any) error // receives the items of a stream; may be nil
}

// Enqueuer returns a store that applies the role's limits. belfry.limits restricts an author like a database
// role that may INSERT jobs and not UPDATE them.
func (e *Env) Enqueuer() *job.Store {
	if e.Role >= Operator {
		return e.Jobs
	}
	return e.Jobs.Limited("authors")
}

// Time returns the current time.
func (e *Env) Time() time.Time {
	if e.Now == nil {
		return time.Now()
	}
	return e.Now()
}

// Compose has the fields of compose.Config, so that this package does not import the composer.
type Compose struct {
	TimeZone  string
	Jitter    time.Duration
	NoAddress []string
}

// Carrier describes the configured carrier.
type Carrier struct {
	Transport string // its kind, or outbox.NoCarrier
	Server    string // its address without user and password; may be empty
	// TakenMost is the number of copies of a queue that may be taken at the same time, the value of TakenKey;
	// 0 means no limit. A relay has up to InFlight messages in flight.
	TakenMost, InFlight int
	TakenKey            string
	// RequeueAfter is delivery.requeue_after.
	RequeueAfter time.Duration
	// Open connects to the carrier. The caller closes the connection. Nil means that no carrier is
	// configured.
	Open func() (outbox.Broker, error)
	// CheckHints tests whether nodes of the notification centre can exchange hints by the carrier's server. Nil means
	// that they exchange none.
	CheckHints func(ctx context.Context) error
}

// Act has the actor and the reason of an act. belfry stores them in the events.
type Act struct {
	Reason string `flag:"reason" help:"the reason, stored in {events}"`
	Actor  string `flag:"actor" help:"the actor, stored in {events} (default: user@host)" local:"true"`
}

// Progressf reports the progress of the operation.
func (e *Env) Progressf(format string, args ...any) {
	if e.Progress != nil {
		e.Progress(fmt.Sprintf(format, args...))
	}
}

// By returns the actor and the reason of an act; without an actor, the actor of env.
func (a Act) By(env *Env) job.Act {
	who := job.Act{Actor: a.Actor, Reason: a.Reason}
	if who.Actor == "" {
		who.Actor = env.Actor
	}
	return who
}

// None is the input or result of an operation without any.
type None struct{}

// Setup describes a process for the doctor. The zero value is an unknown process.
type Setup struct {
	// Configuration names the configuration files. Database is the source of the database's address, and
	// Address the address without a password.
	Configuration, Database, Address string
	// Console is the URL of the console, or "" if this configuration does not serve it.
	Console string
	// OpenFiles are files with secrets that other accounts of the machine can read.
	OpenFiles []string
	// Private means that belfry started the server itself. The next command migrates it.
	Private bool
	// Place is delivery.place.
	Place string
	// Listens means that this configuration has runners or relays that use LISTEN.
	Listens bool
	// StaleAfter is the age of a heartbeat after which a job is taken over.
	StaleAfter time.Duration
	// Health configures the health checks of runs.
	Health governor.HealthConfig
}

// Notifier is notified after each operation that changed something, so that it reads the next snapshot soon.
type Notifier interface{ Changed() }

// ChannelsBy returns the actor and the reason for package channels.
func (a Act) ChannelsBy(env *Env) channels.By {
	who := a.By(env)
	return channels.By{Actor: who.Actor, Reason: who.Reason}
}
