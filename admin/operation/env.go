package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// Env is what operations work with.
type Env struct {
	DB *pgxpool.Pool
	// Jobs knows the abort cache, if there is one.
	Jobs *job.Store
	// Channels reads the configured relation.
	Channels *channels.Store
	// Actor is who acts; an input may say otherwise. Role is what they may do: without one,
	// nothing.
	Actor string
	Role  Role
	// Senders are the names of the senders that this process is configured with.
	Senders []string
	// Retention is what this process is configured with.
	Retention outbox.Retention
	// Carrier is the one that this process is configured with.
	Carrier Carrier
	// Media are those that these senders are for.
	Media []string
	// Compose are the settings by which this process composes messages, for previews.
	Compose Compose
	// ConfigFlags name the files of this configuration to belfry, with a blank before each.
	ConfigFlags string
	// Setup is how this process is set up, for the doctor.
	Setup Setup
	// InStep brings what the database knows of channels.relation in step with Channels; nil:
	// this process has done so when it began, if it may at all.
	InStep func(context.Context) error
	// Now is this process's clock; nil: the machine's.
	Now func() time.Time
	// Interval is between the looks of what looks again and again, if its input does not
	// say; 0: a second.
	Interval time.Duration
	// Watches shares the looks of all that watch; nil: each looks for itself.
	Watches Watcher
	// Progress is told how a long operation goes, a line now and then; nil: nobody looks.
	Progress func(line string)

	each func(item any) error // takes the items of a stream; nil: nobody does
}

// Enqueuer enqueues jobs as the role may: belfry.limits binds an author as it binds a role of the database
// that may INSERT jobs and not UPDATE them.
func (e *Env) Enqueuer() *job.Store {
	if e.Role >= Operator {
		return e.Jobs
	}
	return e.Jobs.Limited("authors")
}

// Time returns the present time.
func (e *Env) Time() time.Time {
	if e.Now == nil {
		return time.Now()
	}
	return e.Now()
}

// Compose has the fields of compose.Config, so that the framework does not import the composer.
type Compose struct {
	TimeZone  string
	Jitter    time.Duration
	NoAddress []string
}

// Carrier is the configured one.
type Carrier struct {
	Transport string // its kind; outbox.NoCarrier: there is none
	Server    string // where it is, without user and password; "": there is none
	// TakenMost is how many copies of a queue may be out at once, which TakenKey sets; 0: as many
	// as there are. One relay has up to InFlight.
	TakenMost, InFlight int
	TakenKey            string
	// Open opens it. It is the caller's to close; nil: there is none.
	Open func() (outbox.Broker, error)
}

// Act is who acts and why, kept in the events.
type Act struct {
	Reason string `flag:"reason" help:"why, kept in {events}"`
	Actor  string `flag:"actor" help:"who, kept in {events} (default: user@host)" local:"true"`
}

// Progressf tells how the operation goes.
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

// None is the input of an operation without parameters.
type None struct{}

// Setup is how this process is set up, for the doctor. The zero value tells of nothing.
type Setup struct {
	// Configuration says where it was read from, Database where its address is given, and
	// Address what that is, without a password.
	Configuration, Database, Address string
	// OpenFiles are files with secrets that other accounts of the machine may read.
	OpenFiles []string
	// Private tells that the server is belfry's own: the next command migrates it.
	Private bool
	// Listens tells that a runner or a relay of this configuration is to be notified.
	Listens bool
	// StaleAfter is when a runner's job is taken over.
	StaleAfter time.Duration
	// Health is what the health checks of runs look at.
	Health job.HealthConfig
}

// Watcher is told after each operation that has changed something, so that it reads again soon.
type Watcher interface{ Acted() }

// ChannelsBy is who acts and why, for package channels.
func (a Act) ChannelsBy(env *Env) channels.By {
	who := a.By(env)
	return channels.By{Actor: who.Actor, Reason: who.Reason}
}
