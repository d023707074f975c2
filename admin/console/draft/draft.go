// Package draft is the form of a new notification: its texts, audience, time and route; and the form that corrects the
// texts of a job.
//
// The form has choices (_to, _when) and languages (_locale, _title, _body) in addition to the parameters of the
// operation enqueue. Apply turns them into parameters, and leaves out the fields of choices that are not chosen, which
// the page hides. New does the reverse.
package draft

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/cities"
	"github.com/belfryhq/belfry/internal/text"
)

// Form is the form with its values.
type Form struct {
	In         map[string]parts.Input // the fields by parameter
	Types      []parts.Option
	OtherType  string // types other than those of Types
	Categories []parts.Option
	Platforms  []parts.Option
	Segments   []parts.Option
	Languages  []Language
	Speaks     string // the number of the selected language
	To, When   string // the selected audience and time
	AtKind     string // the kind of the input of the time
	Free       string // the next time at which the lane is free; "" if it is free now
	FreeAt     string // the same for people
	HowChanged bool
}

// Live is the field by which the script asks for the count of an unfinished form.
const Live = "_live"

// Language is a variant of the texts. The first has no locale: it is for all other locales.
type Language struct{ N, Locale, Title, Body string }

// Source has the parts of a form.
type Source struct {
	Values     url.Values // the parameters
	Fields     url.Values // the fields of the request
	Fresh      bool       // the form is opened, and not submitted
	Inputs     []parts.Input
	Faults     map[string]string
	Categories []channels.Category
	Segments   []channels.Segment
	Lanes      []string
	Free       time.Time // the next free time of the lane
	Site       parts.Site
}

// labels are the labels of the fields that a notification rarely needs.
var labels = map[string]string{
	"route": "Route: media in the order of attempts", "lane": "Lane", "priority": "Priority", "max_recipients": "Most recipients",
	"max_rows_per_second": "Most recipients per second",
	"deliver_at":          "Deliver messages at", "expires_at": "Expires at", "expires_in": "or expires after, such as 2h",
	"idempotency_key": "Key that prevents a repetition",
}

// audiences are the parameters of each choice of an audience. The first one is enough to choose it.
var audiences = map[string][]string{
	"everyone": {"everyone"}, "platform": {"platform"}, "near": {"near", "radius", "platform"}, "segment": {"segment", "platform"},
	"list": {"external_id", "channel_id"}, "other": {"audience"},
}

// Apply turns the fields of the form into the parameters values, in a form that does not change when the page is
// submitted again. It returns faults by parameter.
func Apply(values, fields url.Values, zone *time.Location) (faults map[string]string) {
	faults = make(map[string]string)
	for _, name := range []string{"type", "platform", "route"} {
		if len(values[name]) > 0 {
			values.Set(name, strings.Join(values[name], ","))
		}
	}
	applyAudience(values, fields.Get("_to"))
	switch fields.Get("_when") {
	case "now":
		values.Del("at")
	case "free":
		values.Del("at")
		if free := fields.Get("_free"); free != "" {
			values.Set("at", free)
		}
	case "at":
		if values.Get("at") == "" {
			faults["at"] = "is needed"
		}
	}
	if at, is := instant(values.Get("at")); is {
		values.Set("at", text.Times{Zone: zone}.Clock(at))
	}
	var given map[string]map[string]string
	if json.Unmarshal([]byte(values.Get("variants")), &given) == nil {
		values.Set("variants", marshalled(given))
	}
	if len(fields["_locale"]) > 0 {
		values.Del("variants")
		variants, fault := languageVariants(fields)
		if fault != "" {
			faults["variants"] = fault
		} else if len(variants) > 0 {
			values.Set("variants", marshalled(variants))
		}
	}
	return faults
}

// applyAudience leaves out the fields of audiences that are not chosen. The name of a place becomes its position.
func applyAudience(values url.Values, to string) {
	if mine, chosen := audiences[to]; chosen {
		for _, other := range audiences {
			for _, name := range other {
				if !slices.Contains(mine, name) {
					values.Del(name)
				}
			}
		}
		if to == "everyone" {
			values.Set("everyone", "on")
		}
	}
	if city, known := cities.Named(values.Get("near")); known {
		degrees := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
		values.Set("near", degrees(city.Latitude)+","+degrees(city.Longitude))
	}
}

// isCity reports whether a place is a name and not a position.
func isCity(place string) bool {
	_, known := cities.Named(strings.TrimSpace(place))
	return known
}

// instant parses a time with its zone.
func instant(value string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, strings.Replace(value, " ", "T", 1))
	return at, err == nil
}

// marshalled returns variants as JSON, in the order of the locales.
func marshalled(variants map[string]map[string]string) string {
	return string(text.Must(json.Marshal(variants)))
}

// languagesIn returns the languages of a submitted form that are not empty.
func languagesIn(fields url.Values) (list []Language) {
	nth := func(name string, i int) string {
		if i < len(fields[name]) {
			return strings.TrimSpace(strings.ReplaceAll(fields[name][i], "\r\n", "\n"))
		}
		return ""
	}
	for i := range fields["_locale"] {
		l := Language{Locale: nth("_locale", i), Title: nth("_title", i), Body: nth("_body", i)}
		if l != (Language{}) {
			list = append(list, l)
		}
	}
	return list
}

// languageVariants returns the variants of the languages of a submitted form.
func languageVariants(fields url.Values) (variants map[string]map[string]string, fault string) {
	variants = make(map[string]map[string]string)
	for _, l := range languagesIn(fields) {
		one := map[string]string{"title": l.Title, "body": l.Body}
		maps.DeleteFunc(one, func(_, value string) bool { return value == "" })
		switch _, twice := variants[l.Locale]; {
		case l.Locale == "":
			fault = "has a text without a language"
		case twice:
			fault = "has the language " + l.Locale + " twice"
		}
		variants[l.Locale] = one
	}
	return variants, fault
}

// HasAudience reports whether values choose an audience, even if it is incomplete.
func HasAudience(values url.Values) bool {
	for _, names := range audiences {
		if values.Get(names[0]) != "" {
			return true
		}
	}
	return values.Get("channel_id") != "" || values.Get("radius") != ""
}

// New returns a form.
func New(s Source) Form {
	f := Form{In: make(map[string]parts.Input), To: s.Fields.Get("_to"), When: s.Fields.Get("_when"),
		Speaks: cmp.Or(s.Fields.Get("_language"), "0")}
	for _, in := range s.Inputs {
		in.Label = labels[in.Name]
		f.In[in.Name] = in
		folded := in.Label != "" || in.Name == "data" || in.Name == "needs_approval"
		f.HowChanged = f.HowChanged || folded && (in.Value != "" || s.Faults[in.Name] != "")
	}
	lane := f.In["lane"]
	lane.Offers = s.Lanes
	f.In["lane"] = lane
	for _, name := range []string{"everyone", "near", "segment", "list", "other", "platform"} {
		if f.To == "" && s.Values.Get(audiences[name][0]) != "" {
			f.To = name
		}
	}
	f.Types, f.OtherType = boxes(f.In["type"],
		map[string]string{"inbox": "Notification centre of the app", "push": "Messages, such as push or SMS"})
	for i := range f.Types {
		f.Types[i].Selected = f.Types[i].Selected || s.Fresh && s.Values.Get("type") == ""
	}
	var others string
	if f.Platforms, others = boxes(f.In["platform"], map[string]string{"ios": "iOS", "android": "Android", "web": "Web"}); others != "" {
		f.Platforms = append(f.Platforms, parts.Option{Value: others, Text: others, Selected: true})
	}
	categories := parts.Choice{Options: []parts.Option{{Text: "Choose…"}}}
	segments := parts.Choice{Options: []parts.Option{{Text: "Choose…"}}}
	for _, c := range s.Categories {
		categories.Options = append(categories.Options, parts.Option{Value: c.Name, Text: c.Name})
	}
	for _, one := range s.Segments {
		members := text.CountedTo(one.Members, channels.SegmentCounts, "member")
		segments.Options = append(segments.Options, parts.Option{Value: one.Name, Text: one.Name + ", " + members})
	}
	f.Categories, f.Segments = categories.With(s.Values.Get("category")).Options, segments.With(s.Values.Get("segment")).Options
	if place := s.Fields.Get("near"); isCity(place) {
		near := f.In["near"]
		near.Value = place
		f.In["near"] = near
	}
	f.speak(s)
	f.at(s)
	return f
}

// boxes returns the suggested values of a field with several values as options, and the other values.
func boxes(in parts.Input, labels map[string]string) (list []parts.Option, others string) {
	values := strings.FieldsFunc(in.Value, func(r rune) bool { return r == ',' || r == '\n' || r == ' ' })
	for _, one := range in.Offers {
		list = append(list, parts.Option{Value: one, Text: cmp.Or(labels[one], one), Selected: slices.Contains(values, one)})
	}
	values = slices.DeleteFunc(values, func(one string) bool { return slices.Contains(in.Offers, one) })
	return list, strings.Join(values, ",")
}

// speak sets the languages: the default, each variant, and an empty one.
func (f *Form) speak(s Source) {
	list := []Language{{Title: s.Values.Get("title"), Body: s.Values.Get("body")}}
	if len(s.Fields["_locale"]) > 0 { // also with faults
		list = append(list, languagesIn(s.Fields)...)
	} else {
		var variants map[string]struct{ Title, Body string }
		_ = json.Unmarshal([]byte(s.Values.Get("variants")), &variants) // the operation reports the problem
		for _, locale := range slices.Sorted(maps.Keys(variants)) {
			list = append(list, Language{Locale: locale, Title: variants[locale].Title, Body: variants[locale].Body})
		}
	}
	f.Languages = append(list, Language{})
	for i := range f.Languages {
		f.Languages[i].N = strconv.Itoa(i)
	}
}

// Phone returns the texts of the selected language as a phone shows them.
func (f Form) Phone() (title, body string) {
	title, body = "Title", "Text"
	for _, l := range f.Languages {
		if l.N == "0" || l.N == f.Speaks {
			title, body = cmp.Or(l.Title, title), cmp.Or(l.Body, body)
		}
	}
	return title, body
}

// at sets the time, in the reader's zone, and the next free time of the lane.
func (f *Form) at(s Source) {
	in := f.In["at"]
	f.AtKind = "datetime-local"
	if at, is := instant(in.Value); is {
		in.Value = strings.TrimSuffix(s.Site.In(at).Format("2006-01-02T15:04:05"), ":00")
	} else if in.Value != "" {
		f.AtKind = "text"
	}
	f.In["at"] = in
	free := s.Free
	if at, is := instant(s.Values.Get("at")); is && f.When == "free" && s.Fields.Get(Live) == "" {
		free = at // which was reviewed
	}
	if time.Until(free) > time.Minute {
		f.Free = free.UTC().Format(time.RFC3339)
		f.FreeAt = words.DayOf(s.Site.In(free), time.Now()) + " " + s.Site.In(free).Format("15:04")
	}
	switch {
	case f.When == "" && in.Value != "":
		f.When = "at"
	case f.When == "", f.When == "free" && f.Free == "":
		f.When = "now"
	}
}
