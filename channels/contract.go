package channels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// Fault is one violation of the relation's contract.
type Fault struct {
	Column  string `json:"column"`  // "" for the relation as a whole
	Problem string `json:"problem"` // the violation
	Remedy  string `json:"remedy"`  // the correction
	// Fatal faults make jobs fail or break their guarantees. Other faults cost
	// speed or disable one kind of audience.
	Fatal bool `json:"fatal"`
}

// String returns the fault on one line.
func (f Fault) String() string {
	weight := "warning"
	if f.Fatal {
		weight = "fatal"
	}
	where := ""
	if f.Column != "" {
		where = f.Column + ": "
	}
	return fmt.Sprintf("%s: %s%s; %s", weight, where, f.Problem, f.Remedy)
}

// contractColumns are the columns of the contract and their types.
var contractColumns = []struct {
	name     string
	types    []string
	required bool
}{
	{"id", []string{"bigint", "integer", "smallint"}, true},
	{"external_id", []string{"text", "character varying"}, true},
	{"platform", []string{"text", "character varying"}, true},
	{"active", []string{"boolean"}, true},
	{"location", []string{"point"}, false},
	{"locale", []string{"text", "character varying"}, false},
	{"time_zone", []string{"text", "character varying"}, false},
	{"attributes", []string{"jsonb"}, false},
	{"addresses", []string{"jsonb"}, false},
}

// sampledKeys is the number of keys of a view that Check examines for repetitions.
const sampledKeys = 10000

// Check compares the relation, a table or a view, with the contract of the
// package comment and returns all faults. It
// works in a transaction that it rolls back, and reads the catalog, plans and, of a view, at
// most 10,000 keys. It cannot check that keys never change, or that further keys of a view
// are unique.
func (s *Store) Check(ctx context.Context, on Beginner) ([]Fault, error) {
	tx, err := on.Begin(ctx)
	if err != nil {
		return nil, s.wrap("check the contract", err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // nothing was written
	c := &checker{store: s, tx: tx}
	if err := c.run(ctx); err != nil {
		return nil, s.wrap("check the contract", err)
	}
	return c.faults, nil
}

// UnfitError lists the fatal faults of a relation, with their remedies. It is an ErrRelation.
type UnfitError struct {
	Relation string // as configured
	Faults   []Fault
}

// Unwrap returns ErrRelation.
func (e *UnfitError) Unwrap() error { return ErrRelation }

// Error returns one line.
func (e *UnfitError) Error() string {
	lines := make([]string, 0, len(e.Faults))
	for _, f := range e.Faults {
		where := ""
		if f.Column != "" {
			where = e.Relation + "." + f.Column + " "
		}
		lines = append(lines, where+f.Problem+" -> "+f.Remedy)
	}
	return "channels.relation does not keep the contract: " + strings.Join(lines, "; ")
}

// Vet checks the relation before a walk in the same transaction. Fatal faults are an *UnfitError, so that
// no job walks such a relation. For belfry.channels, whose shape is given by the migrations, Vet checks only
// row-level security.
func (s *Store) Vet(ctx context.Context, tx pgx.Tx) error {
	faults, err := s.vetted(ctx, tx)
	if err != nil {
		return err
	}
	faults = slices.DeleteFunc(faults, func(f Fault) bool { return !f.Fatal })
	if len(faults) > 0 {
		return &UnfitError{s.name, faults}
	}
	return nil
}

func (s *Store) vetted(ctx context.Context, tx pgx.Tx) ([]Fault, error) {
	if s.name != DefaultRelation {
		return s.Check(ctx, tx)
	}
	c := &checker{store: s, tx: tx}
	_, err := c.checkHidden(ctx)
	return c.faults, err
}

// checker is one Check.
type checker struct {
	store  *Store
	tx     pgx.Tx
	have   map[string]Column
	kind   string // pg_class.relkind
	unique bool   // a unique index holds id alone
	faults []Fault
}

func (c *checker) fault(fatal bool, column, problem, remedy string) {
	c.faults = append(c.faults, Fault{Column: column, Problem: problem, Remedy: remedy, Fatal: fatal})
}

func (c *checker) run(ctx context.Context) error {
	s := c.store
	var readable bool
	err := c.tx.QueryRow(ctx, queries.relationFacts, pgx.StrictNamedArgs{"relation": s.relation}).Scan(&c.kind, &readable, &c.unique)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		c.fault(true, "", s.name+" does not exist", "create it, or correct channels.relation")
		return nil
	case err != nil:
		return err
	case !strings.Contains("rpmvf", c.kind):
		c.fault(true, "", s.name+" is neither a table nor a view", "correct channels.relation")
		return nil
	case !readable:
		c.fault(true, "", "this user may not read it", "GRANT SELECT ON "+s.relation)
		return nil
	}
	if hidden, err := c.checkHidden(ctx); err != nil || hidden {
		return err
	}
	if c.have, err = s.Columns(ctx, c.tx); err != nil {
		return err
	}
	sound := c.checkColumns()
	if _, err := c.tx.Exec(ctx, queries.preferIndexes); err != nil {
		return err
	}
	if sound["id"] {
		if err := c.checkKey(ctx); err != nil {
			return err
		}
	}
	if sound["external_id"] && sound["id"] {
		indexed, err := c.usesIndex(ctx, s.render(queries.explainExternalIDs))
		if err != nil {
			return err
		}
		if !indexed {
			c.fault(false, "external_id", "is not indexed: finding channels by external id reads the whole relation",
				c.index("UNIQUE INDEX", "(external_id)"))
		}
	}
	if sound["location"] && sound["id"] {
		indexed, err := c.usesIndex(ctx, s.render(queries.explainCircle))
		if err != nil {
			return err
		}
		if !indexed {
			c.fault(false, "location", "has no GiST index: opening a radius audience reads the whole relation",
				c.index("INDEX", "USING gist (location) INCLUDE (id)"))
		}
	}
	return nil
}

// checkHidden reports whether row-level security hides rows of the relation, or of a table under
// a view, from this user: the server then refuses to plan a statement without them.
func (c *checker) checkHidden(ctx context.Context) (bool, error) {
	var tables, policies, user string
	var some bool
	err := c.tx.QueryRow(ctx, queries.relationSecured, pgx.StrictNamedArgs{"relation": c.store.relation}).Scan(&some, &tables,
		&policies, &user)
	if err != nil || !some {
		return false, err
	}
	err = pgx.BeginFunc(ctx, c.tx, func(tx pgx.Tx) error { // a savepoint
		_, err := tx.Exec(ctx, c.store.sql.estimateRows)
		return err
	})
	if !db.HidesRows(err) {
		return false, err
	}
	c.fault(true, "", fmt.Sprintf("row-level security hides rows of %s from %s (%s), who would get nothing", tables, user, policies),
		fmt.Sprintf("ALTER ROLE %s BYPASSRLS, or drop the policy, or name a view whose owner owns the table", user))
	return true, nil
}

// index returns the remedy for a missing index.
func (c *checker) index(kind, on string) string {
	switch c.kind {
	case "v":
		return "let the view return an indexed column as it is, without a cast, or create an index on the table under it, on " +
			"the very expression the view has"
	case "p": // CONCURRENTLY is not allowed on partitioned tables
		return fmt.Sprintf("CREATE %s ON %s %s", kind, c.store.relation, on)
	}
	return fmt.Sprintf("CREATE %s CONCURRENTLY ON %s %s", kind, c.store.relation, on)
}

// checkColumns checks that the columns exist with the right types, and returns the correct ones.
func (c *checker) checkColumns() map[string]bool {
	sound := make(map[string]bool)
	for _, want := range contractColumns {
		got, ok := c.have[want.name]
		switch {
		case !ok && want.required:
			c.fault(true, want.name, "is missing", fmt.Sprintf("add it as %s, or name a view that has it", want.types[0]))
		case !ok && want.name == "location":
			c.fault(false, want.name, "is missing: radius audiences are refused", "add it as point(longitude, latitude), with a GiST index")
		case !ok && want.name == "addresses":
			c.fault(false, want.name, "is missing: no message finds an address, only senders that need none have something to send",
				`add it as jsonb, as {"push": "token", "sms": "+82…"}`)
		case ok && !slices.Contains(want.types, got.Type):
			remedy := fmt.Sprintf("name a view that has it as %s", want.types[0])
			if want.name == "id" {
				remedy = "leave channels.relation at " + DefaultRelation + " and have it follow the table: `belfry channels attach " +
					c.store.name + " --external-id id`"
			}
			c.fault(true, want.name, fmt.Sprintf("is %s and has to be %s", got.Type, strings.Join(want.types, " or ")), remedy)
		case ok:
			sound[want.name] = true
		}
	}
	return sound
}

// checkKey checks that id can carry the keyset: unique, NOT NULL, and read in
// its order by an index.
func (c *checker) checkKey(ctx context.Context) error {
	s := c.store
	ordered, err := c.usesIndex(ctx, s.render(queries.explainPage))
	if err != nil {
		return err
	}
	if ordered {
		var lowest int64
		if err := c.tx.QueryRow(ctx, s.sql.lowestID).Scan(&lowest); err == nil && lowest == math.MinInt64 {
			c.fault(true, "id",
				fmt.Sprintf("is %d in some row, which would be in no job; allowed values: -9223372036854775807 to 9223372036854775807",
					lowest), "give that row another id, or leave it out of a view")
		} else if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
	}
	table := strings.Contains("rpf", c.kind)
	if table && !c.have["id"].NotNull {
		c.fault(true, "id", "may be NULL: such a row would be in no job", fmt.Sprintf("ALTER TABLE %s ALTER COLUMN id SET NOT NULL", s.relation))
	}
	if !c.unique && c.kind != "v" && c.kind != "f" {
		c.fault(true, "id", "is not unique: no unique index holds id alone", c.index("UNIQUE INDEX", "(id)"))
	}
	if !ordered {
		c.fault(true, "id", "cannot be read in order by an index: every chunk would sort the relation", c.index("UNIQUE INDEX", "(id)"))
		return nil
	}
	if table && c.kind != "f" {
		return nil
	}
	var keys, different int64
	var null bool
	err = c.tx.QueryRow(ctx, s.render(queries.sampleKeys), pgx.StrictNamedArgs{"limit": sampledKeys}).Scan(&keys, &different, &null)
	if err != nil {
		return err
	}
	if null {
		c.fault(true, "id", "is NULL in some row, which would be in no job", "leave such rows out of the view")
	}
	if keys != different {
		c.fault(true, "id", fmt.Sprintf("is not unique: %d of the first %d keys repeat another", keys-different, keys),
			"make the view return each channel once")
	}
	return nil
}

// plan is one node of EXPLAIN (FORMAT JSON).
type plan struct {
	Node  string `json:"Node Type"`
	Index string `json:"Index Cond"`
	Plans []plan `json:"Plans"`
}

// usesIndex explains the statement and reports whether it reads its rows by a
// condition on an index, without a sort.
func (c *checker) usesIndex(ctx context.Context, sql string) (bool, error) {
	var text []byte
	if err := c.tx.QueryRow(ctx, sql).Scan(&text); err != nil {
		return false, err
	}
	var plans []struct{ Plan plan }
	if err := json.Unmarshal(text, &plans); err != nil {
		return false, fmt.Errorf("decode plan: %w", err)
	}
	indexed, full := false, false
	var visit func(plan)
	visit = func(p plan) {
		indexed = indexed || p.Index != ""
		full = full || strings.Contains(p.Node, "Sort") || p.Node == "Seq Scan"
		for _, child := range p.Plans {
			visit(child)
		}
	}
	for _, p := range plans {
		visit(p.Plan)
	}
	return indexed && !full, nil
}
