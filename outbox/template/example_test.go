package template_test

import (
	"encoding/json"
	"fmt"

	"github.com/belfryhq/belfry/outbox/template"
)

func ExampleParse() {
	t, err := template.Parse(`Hello {{attributes.name | trim | default "friend"}}`)
	fmt.Println(t.Title(template.Values{Attributes: map[string]json.RawMessage{"name": json.RawMessage(`" Mina "`)}}), err)
	fmt.Println(t.Title(template.Values{}))
	_, err = template.Parse(`{{if .Admin}}`)
	fmt.Println(err)
	// Output:
	// Hello Mina <nil>
	// Hello friend
	// template: "{{if .Admin}}" is not allowed; allowed values: {{locale}}, {{platform}}, {{external_id}}, {{time_zone}}, {{attributes.NAME}}, each with | upper, | lower, | trim, | default "text", | truncate 1 to 200, and {{"{{"}} for two braces
}
