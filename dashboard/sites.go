package dashboard

import (
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/internal/gate"
	"github.com/outboxkit/outbox-go/internal/outboxname"
	"github.com/outboxkit/outbox-go/outbox"
)

// site is an outbox on the dashboard. A database that is away holds up only the pages of its site.
type site struct {
	outbox  *outbox.Outbox
	sampler *sampler
	gate    *gate.Gate
}

// sites are the outboxes of a dashboard.
type sites struct {
	fixed map[string]*site // of Config.Outboxes

	mu      sync.Mutex
	passing map[string]*site // of Config.Running, as far as their pages were read
}

func (d *Dashboard) newSite(ob *outbox.Outbox) *site {
	c := &d.config
	s := &sampler{outbox: ob, interval: c.Interval, timeout: c.Timeout, maxDueAge: c.MaxDueAge, viewers: map[chan sample]bool{}, began: time.Now()}
	go s.keep(d.ending)
	return &site{ob, s, gate.New(c.MaxReaders, c.Timeout/2)}
}

// running are the outboxes of Config.Running that are shown.
func (d *Dashboard) running() map[string]*outbox.Outbox {
	if d.config.Running == nil {
		return nil
	}
	list := maps.Clone(d.config.Running())
	maps.DeleteFunc(list, func(name string, ob *outbox.Outbox) bool {
		return ob == nil || !outboxname.IsValid(name) || d.sites.fixed[name] != nil
	})
	return list
}

// names are the names of all outboxes that are shown now.
func (d *Dashboard) names() []string {
	names := slices.Collect(maps.Keys(d.sites.fixed))
	for name := range d.running() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// site is the outbox of this name; nil: no such outbox runs.
func (d *Dashboard) site(name string) *site {
	if fixed := d.sites.fixed[name]; fixed != nil || d.config.Running == nil {
		return fixed
	}
	running := d.running()
	d.sites.mu.Lock()
	defer d.sites.mu.Unlock()
	// A tenant that was opened again has another outbox.
	maps.DeleteFunc(d.sites.passing, func(name string, s *site) bool { return running[name] != s.outbox })
	ob := running[name]
	if ob != nil && d.sites.passing[name] == nil {
		d.sites.passing[name] = d.newSite(ob)
	}
	return d.sites.passing[name]
}

// maxListed is how many outboxes the page of the root lists.
const maxListed = 200

// root leads to an outbox: the outbox that the query names, or the first. If there are many, it lists them,
// or the outboxes whose name begins as the query says. slash says that the address ends with a slash.
func (p *page) root(slash bool) error {
	in, err := p.query("outbox")
	if err != nil {
		return err
	}
	to := ""
	if !slash { // the last part of the address, if the mount has no slash at its end
		to = path.Base(strings.SplitN(p.r.RequestURI, "?", 2)[0]) + "/"
	}
	wanted, names := in.get("outbox"), p.dashboard.names()
	switch {
	case len(names) == 0:
		return &problem{http.StatusServiceUnavailable, "No outbox runs", "No outbox runs in this process now. If it opens the databases of tenants, its log says which of them cannot be opened."}
	case slices.Contains(names, wanted):
		return p.redirect(http.StatusFound, to+wanted+"/")
	case wanted == "" && len(names) <= linkedNames:
		return p.redirect(http.StatusFound, to+names[0]+"/")
	case !slash:
		return p.redirect(http.StatusFound, to+"?"+p.r.URL.RawQuery)
	}
	found := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, wanted) })
	shown := found[:min(len(found), maxListed)]
	return p.show(http.StatusOK, "Outboxes", tags(`<p>{} of {} outboxes that run in this process{}.{}</p>
<ul class="columns">{}</ul>`, count(len(found)), count(len(names)), when(wanted != "", ` have a name that begins with <code>{}</code>`, wanted),
		when(len(shown) < len(found), ` The first {}:`, count(len(shown))), each(shown, func(name string) markup {
			return tags(`<li><a href="{}{}/">{}</a></li>`, p.Root, name, name)
		})))
}
