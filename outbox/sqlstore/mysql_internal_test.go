package sqlstore

// MySQLItself is a store as [Detect] returns it for MySQL.
func MySQLItself() *Store {
	s := newStore(mysql, nil)
	s.locksNow.Store(true)
	return s
}
