package channels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/errkind"
)

// Errors of attached relations.
var (
	// ErrAttachment: a relation cannot be attached as asked. The text names the field and
	// what is allowed.
	ErrAttachment = errors.New("attach")
	// ErrRights: this user may not do that. The text has the GRANTs.
	ErrRights = errkind.New(errkind.Forbidden, "this user lacks rights")
	// ErrNotAttached: no relation is attached.
	ErrNotAttached = errkind.New(errkind.Conflict, "no relation is attached; `belfry channels attach` does that")
)

// Attachment says which table of the application belfry.channels follows, and what each
// column of a channel is made of. Empty fields but Relation and ExternalID are left out.
type Attachment struct {
	Relation   string // a table, as Config.Relation
	ExternalID string // a column of a unique index of its own: uuid, text or an integer
	Platform   string // a column, or =VALUE; left out: =unknown
	Active     string // a boolean column, or !COLUMN: when that is NULL or false; left out: always
	Locale     string // a column, or =VALUE
	TimeZone   string // a column, or =VALUE
	Location   string // a point column, or two columns: LATITUDE,LONGITUDE
	Attributes string // a jsonb column, or columns: NAME=COLUMN,COLUMN,…
	Addresses  string // a jsonb column, or columns by medium: push=COLUMN,email=COLUMN
}

// keyTypes are the types that the external id's column may have.
var keyTypes = []string{"uuid", "text", "character varying", "bigint", "integer", "smallint"}

// mapping turns the fields into what belfry.attached_channel reads.
type mapping struct {
	relation string
	quoted   string
	have     map[string]column
	media    []string
	names    []string // the columns that are used
	problems []error
}

func (m *mapping) refuse(field, format string, args ...any) {
	m.problems = append(m.problems, fmt.Errorf("%w: %s: %s", ErrAttachment, field, fmt.Sprintf(format, args...)))
}

// column returns the name of a column without its quotes; kinds are the types that it may
// have, none for any.
func (m *mapping) column(field, name string, kinds ...string) string {
	name = unquoted(name)
	got, ok := m.have[name]
	m.names = append(m.names, name)
	switch {
	case !ok:
		m.refuse(field, "%s has no column %q; allowed values: %s", m.relation, name, strings.Join(slices.Sorted(maps.Keys(m.have)), ", "))
	case got.virtual:
		m.refuse(field, "column %s is a VIRTUAL generated column, which triggers cannot read; allowed values: a STORED one, or the columns that it is made of", name)
	case len(kinds) > 0 && !slices.Contains(kinds, got.kind):
		m.refuse(field, "column %s is %s; allowed types: %s", name, got.kind, strings.Join(kinds, ", "))
	}
	return name
}

// key looks the external id's column up.
func (m *mapping) key(name string) string {
	name = m.column("external_id", name)
	got, ok := m.have[name]
	if !ok || got.virtual || slices.Contains(keyTypes, got.kind) {
		return name
	}
	m.refuse("external_id", "column %s is %s; allowed types: %s; of citext, char, numeric and domains, ALTER TABLE %s ADD COLUMN belfry_id text GENERATED ALWAYS AS (%s::text) STORED UNIQUE "+
		"makes such a column, while it rewrites the table", name, got.kind, strings.Join(keyTypes, ", "), m.quoted, pgx.Identifier{name}.Sanitize())
	return name
}

// text is a column or a constant.
func (m *mapping) text(field, spec string) any {
	if value, constant := strings.CutPrefix(spec, "="); constant {
		return map[string]string{"value": value}
	}
	return map[string]string{"column": m.column(field, spec)}
}

// active is a column, or one that has to be NULL or false.
func (m *mapping) active(spec string) any {
	if name, negated := strings.CutPrefix(spec, "!"); negated {
		return map[string]string{"not": m.column("active", name)}
	}
	return map[string]string{"column": m.column("active", spec, "boolean")}
}

// location is a column of type point, or two of numbers.
func (m *mapping) location(spec string) any {
	latitude, longitude, two := strings.Cut(spec, ",")
	if !two {
		return map[string]string{"column": m.column("location", spec, "point")}
	}
	numbers := []string{"double precision", "real", "numeric", "integer", "bigint", "smallint"}
	return map[string]string{"latitude": m.column("location", latitude, numbers...), "longitude": m.column("location", longitude, numbers...)}
}

// object is a column of type jsonb, or several columns by name.
func (m *mapping) object(field, spec string, names []string) any {
	if m.have[unquoted(spec)].kind == "jsonb" {
		return map[string]string{"column": m.column(field, spec)}
	}
	columns := make(map[string]string)
	for pair := range strings.SplitSeq(spec, ",") {
		name, from, named := strings.Cut(pair, "=")
		if !named {
			name, from = unquoted(name), name
		}
		if names != nil && !slices.Contains(names, name) {
			m.refuse(field, "%q is not a medium; allowed values: a jsonb column, or MEDIUM=COLUMN,… of %s", name, strings.Join(names, ", "))
			continue
		}
		columns[name] = m.column(field, from)
	}
	return map[string]any{"columns": columns}
}

// read makes the mapping, or returns every problem.
func (m *mapping) read(a Attachment) (json.RawMessage, error) {
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

// attachable is what the catalog says of a relation that is to be attached.
type attachable struct {
	id                              uint32
	schema, name, kind, persistence string
	inherited                       bool
	grants                          []string
	unique                          bool
	key, keyType                    string
	columns                         json.RawMessage
	names                           []string // the columns that it uses
}

// examine judges an attachment against the catalog.
func (s *Store) examine(ctx context.Context, q Querier, a Attachment) (f attachable, err error) {
	if s.name != DefaultRelation {
		return f, fmt.Errorf("%w: channels.relation is %s, and only %s can follow another relation", ErrAttachment, s.name, DefaultRelation)
	}
	source, err := New(Config{Relation: a.Relation})
	if err != nil {
		return f, fmt.Errorf("%w: relation: %q is not a table; allowed values: a table as name or schema.name, of letters, digits, _ and $, or in double quotes", ErrAttachment, a.Relation)
	}
	err = q.QueryRow(ctx, queries.attachFacts, pgx.StrictNamedArgs{"relation": source.relation, "key": unquoted(a.ExternalID)}).
		Scan(&f.id, &f.schema, &f.name, &f.kind, &f.persistence, &f.inherited, &f.grants, &f.unique)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return f, fmt.Errorf("%w: relation: %s does not exist, or this user may not see its schema", ErrAttachment, a.Relation)
	case lacksRight(err): // by its schema: more is not told
		schema := Config{a.Relation}.parts()[:1]
		return f, fmt.Errorf("channels: attach %s: %w: GRANT USAGE ON SCHEMA %s, and SELECT and TRIGGER on the table: %w", a.Relation, ErrRights, schema.Sanitize(), err)
	case err != nil:
		return f, source.wrap("attach", err)
	case f.schema == "belfry":
		return f, fmt.Errorf("%w: relation: %s is belfry's own; allowed values: a table of the application", ErrAttachment, a.Relation)
	case f.kind == "p" || f.inherited:
		return f, fmt.Errorf("%w: relation: %s is partitioned or inherited from, and TRUNCATE and DETACH of a partition cannot be followed; "+
			"fill belfry.channels by a row trigger of your own, or, for an integer key, name a view of the table in channels.relation", ErrAttachment, a.Relation)
	case f.persistence != "p":
		return f, fmt.Errorf("%w: relation: %s is temporary or unlogged, and what such a table loses cannot be followed; allowed values: a table that lasts", ErrAttachment, a.Relation)
	case f.kind != "r":
		return f, fmt.Errorf("%w: relation: %s is no table, and only tables have triggers on rows; name the table under it", ErrAttachment, a.Relation)
	case len(f.grants) > 0:
		return f, fmt.Errorf("channels: attach %s: %w: %s", a.Relation, ErrRights, strings.Join(f.grants, "; "))
	}
	m := mapping{relation: a.Relation, quoted: source.relation}
	if m.have, err = source.columns(ctx, q); err != nil {
		return f, err
	}
	if err = q.QueryRow(ctx, queries.mediaNames).Scan(&m.media); err != nil {
		return f, fmt.Errorf("channels: read the media: %w", err)
	}
	if f.columns, err = m.read(a); err != nil {
		return f, err
	}
	f.key, f.names = unquoted(a.ExternalID), m.names
	f.keyType = m.have[f.key].kind
	if !f.unique {
		return f, fmt.Errorf("%w: external_id: no unique index holds %s alone, without a condition and not DEFERRABLE: CREATE UNIQUE INDEX CONCURRENTLY ON %s (%s)",
			ErrAttachment, f.key, source.relation, pgx.Identifier{f.key}.Sanitize())
	}
	return f, nil
}
