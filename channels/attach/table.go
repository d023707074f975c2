package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
)

// Errors of the package.
var (
	// ErrTable: a table cannot be attached. The text names the field and the allowed values.
	ErrTable = errors.New("attach")
	// ErrRights: the database user lacks rights. The text has the GRANTs.
	ErrRights = db.NewError(db.KindForbidden, "this user lacks rights")
	// ErrNotAttached: no table is attached.
	ErrNotAttached = db.NewError(db.KindConflict, "no relation is attached; `belfry channels attach` does that")
)

// Table specifies a table of the application and the source of each column of a channel. Relation and
// ExternalID are required.
type Table struct {
	Relation   string // a table, in the form of channels.Config.Relation
	ExternalID string // a column of a unique index of its own: uuid, text or an integer
	Platform   string // a column, or =VALUE; empty means =unknown
	Active     string // a boolean column, or !COLUMN for NULL or false; empty means always
	Locale     string // a column, or =VALUE
	TimeZone   string // a column, or =VALUE
	Location   string // a point column, or two columns: LATITUDE,LONGITUDE
	Attributes string // a jsonb column, or columns: NAME=COLUMN,COLUMN,…
	Addresses  string // a jsonb column, or columns by medium: push=COLUMN,email=COLUMN
}

// keyTypes are the types that the external id's column may have.
var keyTypes = []string{"uuid", "text", "character varying", "bigint", "integer", "smallint"}

// mapping converts a Table into the JSON that belfry.attached_channel reads.
type mapping struct {
	relation string
	quoted   string
	have     map[string]channels.Column
	media    []string
	names    []string // the mapped columns
	problems []error
}

func (m *mapping) refuse(field, format string, args ...any) {
	m.problems = append(m.problems, fmt.Errorf("%w: %s: %s", ErrTable, field, fmt.Sprintf(format, args...)))
}

// column returns the name of a column without its quotes. No kinds allow any type.
func (m *mapping) column(field, name string, kinds ...string) string {
	name = channels.Unquoted(name)
	got, ok := m.have[name]
	m.names = append(m.names, name)
	switch {
	case !ok:
		m.refuse(field, "%s has no column %q; allowed values: %s", m.relation, name, strings.Join(slices.Sorted(maps.Keys(m.have)), ", "))
	case got.Virtual:
		m.refuse(field, "column %s is a VIRTUAL generated column, which triggers cannot read; allowed values: a STORED one, or "+
			"the columns that it is made of", name)
	case len(kinds) > 0 && !slices.Contains(kinds, got.Type):
		m.refuse(field, "column %s is %s; allowed types: %s", name, got.Type, strings.Join(kinds, ", "))
	}
	return name
}

// key returns the name of the external id's column.
func (m *mapping) key(name string) string {
	name = m.column("external_id", name)
	got, ok := m.have[name]
	if !ok || got.Virtual || slices.Contains(keyTypes, got.Type) {
		return name
	}
	m.refuse("external_id",
		"column %s is %s; allowed types: %s; of citext, char, numeric and domains, ALTER TABLE %s ADD COLUMN belfry_id text "+
			"GENERATED ALWAYS AS (%s::text) STORED UNIQUE "+
			"makes such a column, while it rewrites the table", name, got.Type, strings.Join(keyTypes, ", "), m.quoted,
		pgx.Identifier{name}.Sanitize())
	return name
}

// text maps a column or a constant.
func (m *mapping) text(field, spec string) any {
	if value, constant := strings.CutPrefix(spec, "="); constant {
		return map[string]string{"value": value}
	}
	return map[string]string{"column": m.column(field, spec)}
}

// active maps a boolean column, or a column that is NULL or false for active rows.
func (m *mapping) active(spec string) any {
	if name, negated := strings.CutPrefix(spec, "!"); negated {
		return map[string]string{"not": m.column("active", name)}
	}
	return map[string]string{"column": m.column("active", spec, "boolean")}
}

// location maps a column of type point, or two numeric columns.
func (m *mapping) location(spec string) any {
	latitude, longitude, two := strings.Cut(spec, ",")
	if !two {
		return map[string]string{"column": m.column("location", spec, "point")}
	}
	numbers := []string{"double precision", "real", "numeric", "integer", "bigint", "smallint"}
	return map[string]string{"latitude": m.column("location", latitude, numbers...), "longitude": m.column("location", longitude, numbers...)}
}

// object maps a column of type jsonb, or several columns by name.
func (m *mapping) object(field, spec string, names []string) any {
	if m.have[channels.Unquoted(spec)].Type == "jsonb" {
		return map[string]string{"column": m.column(field, spec)}
	}
	columns := make(map[string]string)
	for pair := range strings.SplitSeq(spec, ",") {
		name, from, named := strings.Cut(pair, "=")
		if !named {
			name, from = channels.Unquoted(name), name
		}
		if names != nil && !slices.Contains(names, name) {
			m.refuse(field, "%q is not a medium; allowed values: a jsonb column, or MEDIUM=COLUMN,… of %s", name, strings.Join(names, ", "))
			continue
		}
		columns[name] = m.column(field, from)
	}
	return map[string]any{"columns": columns}
}

// read returns the JSON of a Table, or all of its problems.
func (m *mapping) read(a Table) (json.RawMessage, error) {
	out := map[string]any{"external_id": m.key(a.ExternalID), "platform": map[string]string{"value": "unknown"}}
	if a.Platform != "" {
		out["platform"] = m.text("platform", a.Platform)
	}
	if a.Active != "" {
		out["active"] = m.active(a.Active)
	}
	if a.Locale != "" {
		out["locale"] = m.text("locale", a.Locale)
	}
	if a.TimeZone != "" {
		out["time_zone"] = m.text("time_zone", a.TimeZone)
	}
	if a.Location != "" {
		out["location"] = m.location(a.Location)
	}
	if a.Attributes != "" {
		out["attributes"] = m.object("attributes", a.Attributes, nil)
	}
	if a.Addresses != "" {
		out["addresses"] = m.object("addresses", a.Addresses, m.media)
	}
	if err := errors.Join(m.problems...); err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// attachable describes a table in the catalog.
type attachable struct {
	id                              uint32
	schema, name, kind, persistence string
	inherited                       bool
	grants                          []string
	unique                          bool
	key, keyType                    string
	columns                         json.RawMessage
	names                           []string // the mapped columns
}

// examine checks a Table against the catalog.
func examine(ctx context.Context, store *channels.Store, q channels.Querier, a Table) (f attachable, err error) {
	if !store.Own() {
		return f, fmt.Errorf("%w: channels.relation is %s, and only %s can follow another relation", ErrTable, store.Relation(),
			channels.DefaultRelation)
	}
	source, err := channels.New(channels.Config{Relation: a.Relation})
	if err != nil {
		return f, fmt.Errorf(
			"%w: relation: %q is not a table; allowed values: a table as name or schema.name, of letters, digits, _ and $, "+
				"or in double quotes", ErrTable, a.Relation)
	}
	quoted := channels.Config{Relation: a.Relation}.Identifier().Sanitize()
	err = q.QueryRow(ctx, queries.attachFacts, pgx.StrictNamedArgs{"relation": quoted, "key": channels.Unquoted(a.ExternalID)}).
		Scan(&f.id, &f.schema, &f.name, &f.kind, &f.persistence, &f.inherited, &f.grants, &f.unique)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return f, fmt.Errorf("%w: relation: %s does not exist, or this user may not see its schema", ErrTable, a.Relation)
	case lacksRight(err): // on the schema; the error does not name it
		schema := channels.Config{Relation: a.Relation}.Identifier()[:1]
		return f, fmt.Errorf("channels: attach %s: %w: GRANT USAGE ON SCHEMA %s, and SELECT and TRIGGER on the table: %w", a.Relation,
			ErrRights, schema.Sanitize(), err)
	case err != nil:
		return f, fmt.Errorf("channels: attach of %s: %w", a.Relation, channels.Explain(err))
	case f.schema == "belfry":
		return f, fmt.Errorf("%w: relation: %s is belfry's own; allowed values: a table of the application", ErrTable, a.Relation)
	case f.kind == "p" || f.inherited:
		return f, fmt.Errorf("%w: relation: %s is partitioned or inherited from, and TRUNCATE and DETACH of a partition cannot be followed; "+
			"fill belfry.channels by a row trigger of your own, or, for an integer key, name a view of the table in channels.relation",
			ErrTable, a.Relation)
	case f.persistence != "p":
		return f, fmt.Errorf(
			"%w: relation: %s is temporary or unlogged, and what such a table loses cannot be followed; allowed "+
				"values: a table that lasts", ErrTable, a.Relation)
	case f.kind != "r":
		return f, fmt.Errorf("%w: relation: %s is no table, and only tables have triggers on rows; name the table under it", ErrTable, a.Relation)
	case len(f.grants) > 0:
		return f, fmt.Errorf("channels: attach %s: %w: %s", a.Relation, ErrRights, strings.Join(f.grants, "; "))
	}
	m := mapping{relation: a.Relation, quoted: quoted}
	if m.have, err = source.Columns(ctx, q); err != nil {
		return f, err
	}
	if err = q.QueryRow(ctx, queries.mediaNames).Scan(&m.media); err != nil {
		return f, fmt.Errorf("channels: read the media: %w", err)
	}
	if f.columns, err = m.read(a); err != nil {
		return f, err
	}
	f.key, f.names = channels.Unquoted(a.ExternalID), m.names
	f.keyType = m.have[f.key].Type
	if !f.unique {
		return f, fmt.Errorf(
			"%w: external_id: no unique index holds %s alone, without a condition and not DEFERRABLE: CREATE UNIQUE INDEX CONCURRENTLY ON %s (%s)",
			ErrTable, f.key, quoted, pgx.Identifier{f.key}.Sanitize())
	}
	return f, nil
}
