package console

import (
	"net/url"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"
)

// linkWith returns the address of an operation's page with values of its parameters. It is empty if a value
// of the path is missing.
func (c *Console) linkWith(o operation.Operation, values map[string][]string) string {
	path, query := pathOf(o), url.Values{}
	for name, texts := range values {
		if place := "{" + name + "}"; strings.Contains(path, place) && len(texts) == 1 {
			path = strings.ReplaceAll(path, place, url.PathEscape(texts[0]))
			continue
		}
		query[name] = texts
	}
	if strings.Contains(path, "{") {
		return "" // a value is missing
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.link(path)
}

// advised is the page that does what a command line does, without its first word; "": there is
// none, or the command line leaves a word to be filled in.
func (c *Console) advised(text string) string {
	words := shellWords(text)
	if strings.Join(words, " ") == "jobs watch" {
		return c.link("/")
	}
	for n := min(len(words), 3); n > 0; n-- {
		if o, there := c.named(strings.Join(words[:n], " ")); there {
			values, understood := valuesOf(o, words[n:])
			if !understood {
				return ""
			}
			return c.linkWith(o, values)
		}
	}
	return ""
}

// valuesOf reads the words after an operation's name.
func valuesOf(o operation.Operation, words []string) (values map[string][]string, understood bool) {
	values = make(map[string][]string)
	args := arguments(o)
	for i := 0; i < len(words); i++ {
		word := words[i]
		name, text, formValues := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		p, known := parameter(o, word, name)
		switch {
		case !known && strings.HasPrefix(word, "-"):
			return nil, false
		case known && p.Place == operation.Flag && !formValues && p.Switch(o.NewInput()):
			text = "on"
		case known && p.Place == operation.Flag && !formValues:
			if i++; i == len(words) {
				return nil, false
			}
			text = words[i]
		case !known:
			if len(args) == 0 {
				return nil, false
			}
			p, text = args[0], word
			if !p.Repeated {
				args = args[1:]
			}
		}
		if placeholder(o, text) {
			return nil, false
		}
		values[p.Name] = append(values[p.Name], text)
	}
	return values, true
}

// parameter is the flag or the key that a word gives.
func parameter(o operation.Operation, word, name string) (operation.Param, bool) {
	all := o.Params()
	i := slices.IndexFunc(all, func(p operation.Param) bool {
		if strings.HasPrefix(word, "--") {
			return p.Place == operation.Flag && p.Flag == name && !p.Local
		}
		return p.Place == operation.Key && strings.Contains(word, "=") && (p.Name == name || p.Column == name)
	})
	if i < 0 {
		return operation.Param{}, false
	}
	return all[i], true
}

// placeholder reports whether a word of a command line stands for another: ID, NAME.
func placeholder(o operation.Operation, word string) bool {
	return slices.ContainsFunc(o.Params(), func(p operation.Param) bool {
		return word == p.Label || word == strings.ToUpper(p.Name)
	}) && word == strings.ToUpper(word) && word != ""
}

// shellWords splits a command line; quotes keep blanks.
func shellWords(text string) []string {
	var words []string
	var b strings.Builder
	quote, begun := rune(0), false
	for _, r := range text {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, begun = r, true
		case quote == 0 && r == ' ':
			if begun {
				words = append(words, b.String())
			}
			b.Reset()
			begun = false
		default:
			b.WriteRune(r)
			begun = true
		}
	}
	if begun {
		words = append(words, b.String())
	}
	return words
}
