"""A package, so that its operator ends with it: one that goes on would act on the objects of other tests."""
