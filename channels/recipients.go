package channels

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
)

// Recipient is what sending a message to a channel needs to know of it.
type Recipient struct {
	ID         int64
	ExternalID string // the service's own user id
	Platform   string
	Active     bool
	Locale     string // "": unknown
	TimeZone   string // "": unknown
	Attributes json.RawMessage
	Addresses  json.RawMessage // where each medium reaches the channel
}

// Recipients reads those of ids that exist, active or not, in no order: by one look at
// the index each, whatever the size of the relation. It reads what is there now, so
// that a new address counts up to the last moment.
func (s *Store) Recipients(ctx context.Context, q Querier, ids []int64) ([]Recipient, error) {
	sql := s.sql.recipients
	if s.name != DefaultRelation { // belfry's own has every column
		have, err := s.columns(ctx, q)
		if err != nil {
			return nil, err
		}
		if err := s.requireColumns(have, Everyone()); err != nil {
			return nil, err
		}
		sql = s.renderOptional(queries.SQL("Recipients"), have)
	}
	rows, err := q.Query(ctx, sql, pgx.StrictNamedArgs{"ids": ids})
	if err != nil {
		return nil, s.wrap("read recipients", err)
	}
	var (
		id                                   int64
		active                               *bool
		external, platform, locale, timeZone *string
		attributes, addresses                *string // json.RawMessage would be parsed only to be copied
	)
	list := make([]Recipient, 0, len(ids))
	_, err = pgx.ForEachRow(rows, []any{&id, &active, &external, &platform, &locale, &timeZone, &attributes, &addresses}, func() error {
		list = append(list, Recipient{
			ID: id, ExternalID: text(external), Platform: text(platform), Active: active != nil && *active,
			Locale: text(locale), TimeZone: text(timeZone), Attributes: objectText(attributes), Addresses: objectText(addresses),
		})
		return nil
	})
	if err != nil {
		return nil, s.wrap("read recipients", err)
	}
	return list, nil
}

// objectText is the JSON of an object; of none it is an empty one.
func objectText(s *string) json.RawMessage {
	if s == nil || *s == "" {
		return json.RawMessage("{}")
	}
	return json.RawMessage(*s)
}
