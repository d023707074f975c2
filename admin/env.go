package admin

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
)

// Env is what operations work with.
type Env struct {
	DB *pgxpool.Pool
	// Jobs knows the abort cache, if there is one.
	Jobs *job.Store
	// Channels reads the configured relation.
	Channels *channels.Store
	// Actor is who acts; an input may say otherwise.
	Actor string
	// Senders are the names of the senders that this process is configured with.
	Senders []string
	// Progress is told how a long operation goes, a line now and then; nil: nobody looks.
	Progress func(line string)
}

// Act is who acts and why, kept in the events.
type Act struct {
	Reason string `flag:"reason" help:"why, kept in {events}"`
	Actor  string `flag:"actor" help:"who, kept in {events} (default: user@host)"`
}

func (a Act) by(env *Env) job.Act {
	who := job.Act{Actor: a.Actor, Reason: a.Reason}
	if who.Actor == "" {
		who.Actor = env.Actor
	}
	return who
}

// None is the input of an operation without parameters.
type None struct{}
