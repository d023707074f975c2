package importing

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/belfryhq/belfry/channels"
)

// columnNames lists the columns of a file for messages.
const columnNames = "external_id, platform, active, latitude, longitude, locale, time_zone, attributes, addresses, address.<medium>"

var mediumName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`) })

// header maps the columns of a file to their positions.
type header struct {
	names []string // in the order of the file
	at    map[string]int
	media []string // of the address.<medium> columns
}

// parseHeader reads the header row. as maps columns of the file to columnNames; an empty name leaves a column
// out. The columns line and reason of a file of rejects are ignored.
func parseHeader(fields []string, as map[string]string) (header, error) {
	h := header{names: make([]string, len(fields)), at: make(map[string]int, len(fields))}
	for i, name := range fields {
		h.names[i] = strings.TrimSpace(name)
	}
	for _, column := range slices.Sorted(maps.Keys(as)) {
		if !slices.Contains(h.names, column) {
			return h, fmt.Errorf("column %s, which is mapped to %s, is not in the header; its columns: %s", channels.Clip(column),
				cmp.Or(as[column], "left out"), channels.Clip(strings.Join(h.names, ", ")))
		}
	}
	for i, name := range h.names {
		if is, said := as[name]; said && is == "" {
			continue
		} else if said {
			name = is
		}
		if _, repeated := h.at[name]; repeated {
			return h, fmt.Errorf("column %s is named twice", channels.Clip(name))
		}
		h.at[name] = i
		if medium, ok := strings.CutPrefix(name, "address."); ok {
			if !mediumName().MatchString(medium) {
				return h, fmt.Errorf(
					"column %s: %s is not a medium; allowed values: a lower-case letter, then up to 62 of letters, digits and _",
					channels.Clip(name), channels.Clip(medium))
			}
			h.media = append(h.media, medium)
			continue
		}
		switch name {
		case "external_id", "platform", "active", "latitude", "longitude", "locale", "time_zone", "attributes", "addresses", "line", "reason":
		default:
			if len(fields) == 1 && strings.ContainsAny(name, ";\t|") {
				return h, fmt.Errorf("the header %s has one column; separate columns by commas", channels.Clip(name))
			}
			return h, fmt.Errorf(
				"column %s is unknown%s; allowed columns: %s; --map COLUMN=FIELD maps a column to a field, --map COLUMN= leaves it out",
				channels.Clip(name), meant(name, strings.Split(columnNames, ", ")), columnNames)
		}
	}
	for _, name := range []string{"external_id", "platform"} {
		if !h.has(name) {
			return h, fmt.Errorf("column %s is missing; required columns: external_id, platform; --map COLUMN=%[1]s maps another column to it", name)
		}
	}
	if h.has("latitude") != h.has("longitude") {
		return h, fmt.Errorf("the header has only one of latitude and longitude; it must have both or neither")
	}
	if h.has("addresses") && len(h.media) > 0 {
		return h, fmt.Errorf("addresses and address.%s exclude each other: the first replaces all addresses, the second sets one", h.media[0])
	}
	return h, nil
}

func (h header) has(name string) bool {
	_, ok := h.at[name]
	return ok
}

// channelRow is one valid row of a file.
type channelRow struct {
	line       int
	fields     []string // for the file of rejects
	externalID string
	platform   string
	active     *bool // nil retains the stored value, true for a new channel
	location   pgtype.Point
	locale     string
	timeZone   string
	attributes json.RawMessage
	addresses  json.RawMessage
	removed    []string // media whose cell is empty
}

// values returns the row for COPY, in the order of tableColumns.
func (r channelRow) values() []any {
	return []any{
		r.externalID, r.platform, r.active, r.location, r.locale, r.timeZone, r.attributes, r.addresses, r.removed,
	}
}

// tableColumns returns the columns of belfry_import.
func tableColumns() []string {
	return []string{"external_id", "platform", "active", "location", "locale", "time_zone", "attributes", "addresses", "removed"}
}

// rowParser turns records into rows.
type rowParser struct {
	header    header
	platforms []string // known to the database
	zones     knownZones
}

// knownZones caches whether a time zone exists, by name. A file has few different names.
type knownZones map[string]bool

// maxZones limits the cache. It is more than the number of names in the IANA database.
const maxZones = 2048

func (z knownZones) has(name string) bool {
	known, asked := z[name]
	if !asked {
		_, err := time.LoadLocation(name)
		known = err == nil && name != "Local"
		if len(z) < maxZones {
			z[name] = known
		}
	}
	return known
}

// parse returns the row, or the reason for its rejection.
func (p rowParser) parse(rec record) (row channelRow, reason string) {
	if len(rec.fields) != len(p.header.names) {
		return row, fmt.Sprintf("%d fields; the header has %d", len(rec.fields), len(p.header.names))
	}
	for i, f := range rec.fields {
		name := p.header.names[i]
		if !utf8.ValidString(f) {
			return row, fmt.Sprintf("%s: not UTF-8", name)
		}
		if name == "attributes" || name == "addresses" {
			continue // JSON may have line breaks, and escapes everything else
		}
		if at := strings.IndexFunc(f, unicode.IsControl); at >= 0 {
			return row, fmt.Sprintf("%s: control character %q", name, rune(f[at]))
		}
	}
	row = channelRow{line: rec.line, fields: rec.fields, removed: []string{}}
	for _, part := range []func([]string, *channelRow) string{p.identity, p.place, p.texts, p.objects} {
		if reason := part(rec.fields, &row); reason != "" {
			return channelRow{}, reason
		}
	}
	return row, ""
}

// cell returns the field of a column, or "" if the file has no such column.
func (p rowParser) cell(fields []string, name string) string {
	i, ok := p.header.at[name]
	if !ok {
		return ""
	}
	return fields[i]
}

func (p rowParser) identity(fields []string, row *channelRow) string {
	row.externalID = p.cell(fields, "external_id")
	if n := utf8.RuneCountInString(row.externalID); n < 1 || n > 200 {
		return fmt.Sprintf("external_id: %d characters; allowed values: 1 to 200", n)
	}
	if trimmed := strings.TrimFunc(row.externalID, unseen); trimmed != row.externalID {
		return fmt.Sprintf(
			"external_id: %s begins or ends with a blank or an invisible character, and would be another person than %s; remove it",
			strconv.QuoteToASCII(row.externalID), channels.Clip(trimmed))
	}
	row.platform = p.cell(fields, "platform")
	if !slices.Contains(p.platforms, row.platform) {
		return fmt.Sprintf("platform: %s is not a platform%s; allowed values: %s (INSERT INTO belfry.platforms adds one)",
			channels.Clip(row.platform), meant(row.platform, p.platforms), strings.Join(p.platforms, ", "))
	}
	switch active := p.cell(fields, "active"); strings.ToLower(active) {
	case "":
	case "true", "t", "yes", "y", "1":
		row.active = new(bool)
		*row.active = true
	case "false", "f", "no", "n", "0":
		row.active = new(bool)
	default:
		return fmt.Sprintf("active: %s is not allowed; allowed values: true, false, or empty to keep it", channels.Clip(active))
	}
	return ""
}

// unseen reports whether r is a blank or an invisible character, such as U+200B.
func unseen(r rune) bool { return unicode.IsSpace(r) || unicode.In(r, unicode.Z, unicode.Cf) }

// meant returns a hint at the allowed value that equals text except for case, blanks and hyphens.
func meant(text string, allowed []string) string {
	same := strings.NewReplacer(" ", "_", "-", "_").Replace(strings.ToLower(strings.TrimFunc(text, unseen)))
	for _, a := range allowed {
		if same == strings.ToLower(a) {
			return "; did you mean " + a + "?"
		}
	}
	return ""
}

func (p rowParser) place(fields []string, row *channelRow) string {
	latitude, longitude := p.cell(fields, "latitude"), p.cell(fields, "longitude")
	if latitude == "" && longitude == "" {
		return ""
	}
	if latitude == "" || longitude == "" {
		return "latitude and longitude: one is empty and the other is not"
	}
	lat, reason := degrees("latitude", latitude, 90)
	if reason != "" {
		return reason
	}
	lon, reason := degrees("longitude", longitude, 180)
	if reason != "" {
		return reason
	}
	row.location = pgtype.Point{P: pgtype.Vec2{X: lon, Y: lat}, Valid: true}
	return ""
}

func degrees(name, text string, limit float64) (float64, string) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.Abs(v) > limit {
		return 0, fmt.Sprintf("%s: %s is not allowed; allowed values: %.0f to %.0f degrees", name, channels.Clip(text), -limit, limit)
	}
	if math.Abs(v) < 1e-12 { // the index of locations multiplies differences, and such a product has no float8
		v = 0
	}
	return v, ""
}

// localeShape matches language tags of BCP 47, and _ instead of -, which is common.
var localeShape = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*$`) })

func (p rowParser) texts(fields []string, row *channelRow) string {
	row.locale, row.timeZone = p.cell(fields, "locale"), p.cell(fields, "time_zone")
	if n := utf8.RuneCountInString(row.locale); n > 35 {
		return fmt.Sprintf("locale: %d characters; allowed values: up to 35", n)
	}
	if row.locale != "" && !localeShape().MatchString(row.locale) {
		return fmt.Sprintf(
			"locale: %s is not a language tag; allowed values: language tags (BCP 47) such as ko, pt-BR, zh-Hant-TW, or empty",
			channels.Clip(row.locale))
	}
	if n := utf8.RuneCountInString(row.timeZone); n > 64 {
		return fmt.Sprintf("time_zone: %d characters; allowed values: up to 64", n)
	}
	if row.timeZone != "" && !p.zones.has(row.timeZone) {
		return fmt.Sprintf(
			"time_zone: %s is not known; allowed values: names of the IANA database such as UTC, Asia/Seoul, Europe/Berlin, or empty",
			channels.Clip(row.timeZone))
	}
	return ""
}

func (p rowParser) objects(fields []string, row *channelRow) string {
	var reason string
	if row.attributes, reason = jsonObject("attributes", p.cell(fields, "attributes")); reason != "" {
		return reason
	}
	if row.addresses, reason = jsonObject("addresses", p.cell(fields, "addresses")); reason != "" {
		return reason
	}
	if len(p.header.media) == 0 {
		return ""
	}
	addresses := make(map[string]string, len(p.header.media))
	for _, medium := range p.header.media {
		if address := p.cell(fields, "address."+medium); address != "" {
			addresses[medium] = address
		} else {
			row.removed = append(row.removed, medium)
		}
	}
	text, err := json.Marshal(addresses)
	if err != nil {
		return fmt.Sprintf("addresses: %v", err)
	}
	row.addresses = text
	return ""
}

// jsonObject checks a cell of JSON; empty is the empty object. The cell itself
// is not in the reason, because addresses are private.
func jsonObject(name, cell string) (json.RawMessage, string) {
	if cell == "" {
		return json.RawMessage("{}"), ""
	}
	if !json.Valid([]byte(cell)) {
		return nil, name + ": not JSON"
	}
	if strings.TrimLeft(cell, " \t\r\n")[0] != '{' {
		return nil, name + ": must be a JSON object"
	}
	return json.RawMessage(cell), ""
}
