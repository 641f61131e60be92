package conformance

var checkTests = []storeTest{
	{"ATableThatIsRightPasses", func(s *storeSuite) {
		s.ok("Check", s.Store.Check(s.ctx, s.DB, false))
		s.ok("Check for claims", s.Store.Check(s.ctx, s.DB, true))
		s.count("rows", s.pollAt(later).Len(), 0)
	}},
}
