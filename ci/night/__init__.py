"""What ci/nightly is made of; docs/nightly.md is the page about it."""
