package dashboard

import (
	"fmt"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/outbox"
)

// sharesBody shows the limits of all processes together, and the share of each process; empty
// without such limits.
func sharesBody(list []outbox.KindShares) markup {
	return when(len(list) > 0, `<section aria-labelledby="shares"><h2 id="shares">Limits of all processes</h2>
<div class="wide" tabindex="0" role="region" aria-label="Table of the shares"><table>
<thead><tr><th scope="col">Kind</th><th scope="col">Limits</th><th scope="col">Process</th><th scope="col">Share</th><th scope="col">Until</th></tr></thead>
<tbody>{}</tbody></table></div>
<p class="help">A process with events of the kind renews its share every second. A process that waits has events, and no share because the others have all parts.</p>
</section>
`, each(list, sharesRows))
}

func sharesRows(k outbox.KindShares) markup {
	begin := tags(`<tr><th scope="row" class="text">{}</th><td class="text" data-label="Limits">{}</td>`, kindText(k.Kind), operjson.Limits(&k))
	if len(k.Shares) == 0 {
		return tags(`{}<td colspan="3">No process has a share now.</td></tr>
`, begin)
	}
	return each(k.Shares, func(s outbox.ProcessShare) markup {
		share := fmt.Sprintf("%d of %d", s.Parts, s.Of)
		return tags(`{}<td class="text" data-label="Process">{}</td><td data-label="Share">{}</td><td data-label="Until">{}</td></tr>
`, begin, s.Owner, choose(s.Waits, "waits", share), moment(s.Until))
	})
}
