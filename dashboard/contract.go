package dashboard

import (
	"encoding/json"
	"io"
	"io/fs"

	"github.com/outboxkit/outbox-go/internal/contract"
	"github.com/outboxkit/outbox-go/internal/jsontext"
	"github.com/outboxkit/outbox-go/outbox"
)

// contractOf writes the JSON Schema and the example of a kind; nothing if there is no file of the kind.
func contractOf(contracts fs.FS, aggregate outbox.AggregateType, event outbox.EventType) markup {
	if contracts == nil {
		return ""
	}
	data, whole := beginning(contracts, contract.FileName(string(aggregate), string(event)))
	if data == nil {
		return ""
	}
	var example markup
	if whole {
		var file struct {
			Examples []json.RawMessage `json:"examples"`
		}
		if json.Unmarshal(data, &file) == nil && len(file.Examples) > 0 {
			shown, _ := jsontext.Indent(file.Examples[0], maxShown)
			example = tags(`<p>An example:</p>
<pre tabindex="0" aria-label="Example">{}</pre>`, string(shown))
		}
	}
	schema, all := jsontext.Indent(data, maxShown)
	return tags(`<section aria-labelledby="format"><h2 id="format">Format of this kind</h2>
<details><summary>JSON Schema and example</summary>
{}
<p>The JSON Schema:</p>{}
<pre tabindex="0" aria-label="JSON Schema">{}</pre></details></section>`,
		example, when(!whole || !all, `<p class="note">Not all of it fits on a page.</p>`), string(schema))
}

// beginning returns the first bytes of a file; nil if the file cannot be read.
func beginning(folder fs.FS, name string) (data []byte, whole bool) {
	file, err := folder.Open(name)
	if err != nil {
		return nil, false
	}
	defer func() { _ = file.Close() }()
	data, err = io.ReadAll(io.LimitReader(file, maxShown+1))
	if err != nil || len(data) == 0 {
		return nil, false
	}
	return data[:min(len(data), maxShown)], len(data) <= maxShown
}
